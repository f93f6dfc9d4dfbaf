// This is domain-certificate.bicep for Flex Consumption, where a certificate belongs to the site.

@description('Name of the site.')
param siteName string

@description('The domain.')
param domain string

@description('The Azure region.')
param location string

@description('Tags of the certificate.')
param tags object

resource site 'Microsoft.Web/sites@2025-03-01' existing = {
  name: siteName
}

resource certificate 'Microsoft.Web/sites/certificates@2025-03-01' = {
  parent: site
  name: domain
  location: location
  tags: tags
  properties: {
    canonicalName: domain
  }
}

resource binding 'Microsoft.Web/sites/hostNameBindings@2025-03-01' = {
  parent: site
  name: domain
  properties: {
    siteName: siteName
    hostNameType: 'Verified'
    customHostNameDnsRecordType: 'CName'
    sslState: 'SniEnabled'
    thumbprint: certificate.properties.thumbprint
  }
}
