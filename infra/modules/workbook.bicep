// The workbook for operators: workbook.json, under Workbooks of the Application Insights component.

@description('Name of the workbook, a GUID.')
param name string

@description('The Application Insights component.')
param applicationInsightsId string

@description('The Log Analytics workspace.')
param workspaceId string

@description('The Azure region.')
param location string

@description('Tags of the workbook.')
param tags object

resource workbook 'Microsoft.Insights/workbooks@2023-06-01' = {
  name: name
  location: location
  tags: tags
  kind: 'shared'
  properties: {
    displayName: 'tiney'
    category: 'workbook'
    sourceId: applicationInsightsId
    version: 'Notebook/1.0'
    // This component is queried if the workbook is opened from elsewhere, such as by a link.
    serializedData: replace(
      string(union(loadJsonContent('../workbook.json'), {
        fallbackResourceIds: [
          applicationInsightsId
        ]
      })),
      'WORKSPACE_ID',
      workspaceId
    )
  }
}

@description('Resource ID of the workbook.')
output id string = workbook.id
