// A custom domain of the site, with a certificate that Azure makes and renews.
//
// The site must have the domain before Azure makes a certificate for it. The certificate must exist
// before it can be bound to the domain. The last step sets the same resource as the first one, so
// it is in a module of its own.

@description('Name of the site.')
param siteName string

@description('Name of the site\'s plan.')
param planName string

@description('The domain.')
param domain string

@description('Whether the site is on a Flex Consumption plan, where certificates belong to the site.')
param flex bool

@description('Whether the domain is to be added. False: it is there already.')
param addDomain bool

@description('The host name that Azure gave the site. Who has it has waited for the site.')
param siteHostName string

@description('The Azure region.')
param location string

@description('Tags of the certificate.')
param tags object

resource site 'Microsoft.Web/sites@2025-03-01' existing = {
  name: siteName
}

resource binding 'Microsoft.Web/sites/hostNameBindings@2025-03-01' = if (addDomain) {
  parent: site
  name: domain
  properties: {
    siteName: siteName
    hostNameType: 'Verified'
    customHostNameDnsRecordType: 'CName'
    sslState: 'Disabled'
  }
}

module certificate 'domain-certificate.bicep' = if (!flex) {
  name: '${siteName}-certificate-${uniqueString(domain)}'
  params: {
    siteName: siteName
    planName: planName
    domain: domain
    location: location
    tags: tags
  }
  dependsOn: [
    binding
  ]
}

module siteCertificate 'domain-certificate-flex.bicep' = if (flex) {
  name: '${siteName}-certificate-${uniqueString(domain)}'
  params: {
    siteName: siteName
    domain: domain
    location: location
    tags: tags
  }
  dependsOn: [
    binding
  ]
}

@description('What the domain\'s CNAME record has to name.')
output cname string = siteHostName
