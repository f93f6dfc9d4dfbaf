// The certificate of a domain that the site already has, and its binding to the domain.

@description('Name of the site.')
param siteName string

@description('Name of the site\'s plan.')
param planName string

@description('The domain.')
param domain string

@description('The Azure region.')
param location string

@description('Tags of the certificate.')
param tags object

resource servicePlan 'Microsoft.Web/serverfarms@2025-03-01' existing = {
  name: planName
}

resource site 'Microsoft.Web/sites@2025-03-01' existing = {
  name: siteName
}

resource certificate 'Microsoft.Web/certificates@2025-03-01' = {
  name: '${siteName}-${domain}'
  location: location
  tags: tags
  properties: {
    serverFarmId: servicePlan.id
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
